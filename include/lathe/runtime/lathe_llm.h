/*===- lathe_llm.h - serving engines of paged decoders ------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Requests of tokens go in, tokens come out; all requests share one pool of keys and values, and each step
 * works on tokens of many. One thread uses a lathe_llm at a time, and steps run in its calls.
 *
 *   lathe_engine_open("model.lathe", &engine);          // of a paged decoder
 *   lathe_llm_create(engine, "cpu", NULL, &llm);
 *   lathe_llm_submit(llm, &request, &id);
 *   do lathe_llm_step(llm, &unfinished); while (unfinished);
 *   lathe_llm_result_of(llm, id, &result);
 *   lathe_llm_release(llm, id);
 *
 * Errors and structs with a size are as in lathe.h.
 *===------------------------------------------------------------------===*/
#ifndef LATHE_RUNTIME_LATHE_LLM_H
#define LATHE_RUNTIME_LATHE_LLM_H

#include "lathe/runtime/lathe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lathe_llm lathe_llm;

typedef struct lathe_llm_options {
  uint32_t size;                /* sizeof(lathe_llm_options) */
  int32_t threads;              /* CPU: 0 = all cores this process may use */
  uint64_t kv_bytes;            /* of the pool of keys and values; 0: 256 MiB */
  uint32_t max_sequence_tokens; /* prompt and answer of one request; 0: 4096 */
  uint32_t max_step_tokens;     /* of all requests in one step; 0: 64 */
  uint32_t max_requests;        /* that a step works on; 0: 32, or max_step_tokens where that is less */
  int32_t no_prefix_cache;      /* equal beginnings of prompts are computed again */
  int32_t batch_invariant;      /* the bits of an answer do not depend on who shares its steps; steps of few
                                   tokens take longer; on a GPU of engines that were compiled so alone, else
                                   LATHE_UNSUPPORTED */
  int32_t no_graphs;            /* CUDA: launch kernels one by one */
  uint64_t swap_bytes;          /* of host memory for keys and values of requests that give way to others, which come
                                   back where that takes less time than computing them again; 0: none */
  int32_t overlap;              /* 1: a step is launched before the tokens of the one before have come, which the
                                   device puts into it; -1: never; 0: on a GPU. The same tokens, a call of
                                   lathe_llm_step() later */
} lathe_llm_options;

/* The engine is that of a paged decoder (it has a section `llm`), otherwise LATHE_USAGE; a pool that cannot hold one sequence of
 * max_sequence_tokens is LATHE_UNSUPPORTED, with the figures. The engine may be closed before the llm. */
LATHE_API lathe_error *lathe_llm_create(const lathe_engine *, const char *device, const lathe_llm_options *,
                                        lathe_llm **out);
LATHE_API void lathe_llm_destroy(lathe_llm *);

/* What is asked of an answer is applied to the logits in this order: bias; repetition_penalty; frequency_penalty and
 * presence_penalty; allowed tokens and min_tokens; temperature; top_k; top_p of what is left; min_p of what is left; the
 * draw. Of equal logits the lower token counts as the greater, everywhere. A draw depends on logits, seed, sample and the
 * token's number in the answer alone, so neither company nor a preemption changes it. */
typedef struct lathe_llm_request {
  uint32_t size;          /* sizeof(lathe_llm_request); what an older caller's struct lacks is 0 */
  uint32_t max_tokens;    /* of the answer, at least 1 */
  const uint32_t *tokens; /* the prompt, at least one; copied, as is all that is pointed to */
  size_t token_count;
  const uint32_t *stop_tokens; /* the answer ends with the first of these; may be NULL */
  size_t stop_count;
  float temperature;      /* logits are divided by it; 0: the most likely token */
  float top_p;            /* of the likeliest tokens, until they have this share; 0 or 1: of all */
  uint32_t top_k;         /* of the likeliest tokens, so many; 0: of all */
  uint64_t seed;
  float min_p;              /* tokens at least so many times as likely as the likeliest; 0: all */
  float repetition_penalty; /* logits of tokens of prompt and answer are divided by it where positive, else multiplied; 0
                               or 1: none */
  float presence_penalty;   /* taken from the logits of tokens that are in the answer */
  float frequency_penalty;  /* the same for each time that they are */
  const uint32_t *bias_tokens; /* [bias_count]: bias_values are added to their logits; -INFINITY: never */
  const float *bias_values;
  size_t bias_count;
  const uint32_t *allowed; /* [allowed_words]: token t may come where bit t % 32 of word t / 32 is set; words that are
                              lacking are 0; NULL: all may */
  size_t allowed_words;
  uint32_t min_tokens;    /* no stop token before so many tokens */
  int32_t logprobs;       /* 0: none; 1: of each token of the answer, and of the top_logprobs likeliest at its place */
  int32_t prompt_logprobs; /* the same of the prompt's tokens but the first; its prefix is computed even if cached */
  uint32_t top_logprobs;  /* at most 20 */
  uint32_t samples;       /* answers to the prompt, which is computed once; 0: 1 */
  int32_t priority;       /* a greater one goes first, and takes the place of lesser ones */
  uint64_t tenant;        /* whose request it is: lathe_llm_set_tenant() */
} lathe_llm_request;

/* Queues a request behind those before it. `id` gets the first answer's; those of other samples follow it, as requests of
 * their own. LATHE_USAGE, with the figures, for one that can never run: an empty prompt, tokens that the vocabulary
 * lacks, more tokens than max_sequence_tokens; and for sampling without a meaning. */
LATHE_API lathe_error *lathe_llm_submit(lathe_llm *, const lathe_llm_request *, uint64_t *id);

/* Tenants share steps by the tokens that each had, prompts computed and answers alike: of those with requests that wait
 * and equal priority, the one that had the fewest over its weight comes first. */
typedef struct lathe_llm_tenant {
  uint32_t size;         /* sizeof(lathe_llm_tenant) */
  uint32_t max_requests; /* that run at once; 0: no limit but the llm's */
  uint64_t max_tokens;   /* prompts and answers, as long as they may get, of those that run at once; one runs in any
                            case; 0: no limit */
  double weight;         /* 0: 1 */
} lathe_llm_tenant;
/* From now on; a tenant of which nothing is said has no limits and the weight 1. */
LATHE_API lathe_error *lathe_llm_set_tenant(lathe_llm *, uint64_t tenant, const lathe_llm_tenant *);

/* One step: the next token of each request that has one coming, and parts of prompts. `unfinished` (may be NULL) gets
 * how many requests are. When a step fails, all requests are as before it. Where steps overlap, a call launches a step
 * and waits for the one before: a request that stops has taken part in one step more, which nobody sees, and what is
 * cancelled may be worked on until the next call; an error may come a call later, and keys and values of all that run
 * are computed again. */
LATHE_API lathe_error *lathe_llm_step(lathe_llm *, size_t *unfinished);

typedef enum lathe_llm_finish {
  LATHE_LLM_UNFINISHED = 0,
  LATHE_LLM_LENGTH = 1, /* max_tokens */
  LATHE_LLM_STOP = 2,   /* a stop token, which is the last one */
  LATHE_LLM_CANCELLED = 3,
  LATHE_LLM_FAILED = 4  /* no token that is allowed had a number for its logit */
} lathe_llm_finish;

typedef struct lathe_llm_result {
  const uint32_t *tokens; /* the answer so far; valid until the next call */
  size_t token_count;
  lathe_llm_finish finish;
  int64_t first_token_ns; /* from the submission to the first token; -1 before it */
  int64_t last_token_ns;
} lathe_llm_result;
/* LATHE_USAGE for an id that is not known, or released. */
LATHE_API lathe_error *lathe_llm_result_of(const lathe_llm *, uint64_t id, lathe_llm_result *out);

typedef struct lathe_llm_logprob {
  uint32_t token;
  float logprob;
} lathe_llm_logprob;

/* Natural logarithms of probabilities by the model's own logits, before anything that sampling does to them. */
typedef struct lathe_llm_logprobs {
  float logprob;                /* of the token that is there */
  uint32_t rank;                /* 1: it is the likeliest */
  const lathe_llm_logprob *top; /* [top_count], the likeliest first; valid until the next call */
  size_t top_count;
} lathe_llm_logprobs;
/* Of token `index` of the answer (of_prompt 0), or of the prompt (1; from 1 on). LATHE_USAGE where they were not asked for,
 * or are not known yet. */
LATHE_API lathe_error *lathe_llm_logprobs_of(const lathe_llm *, uint64_t id, int32_t of_prompt, size_t index,
                                             lathe_llm_logprobs *out);

/* Ends a request that is not finished; what it has so far stays readable. */
LATHE_API lathe_error *lathe_llm_cancel(lathe_llm *, uint64_t id);
/* Forgets a request; one that is not finished ends. */
LATHE_API lathe_error *lathe_llm_release(lathe_llm *, uint64_t id);

/* Sums since the llm was created. */
typedef struct lathe_llm_counters {
  uint32_t size;                       /* sizeof(lathe_llm_counters), set by the caller; no more bytes are written */
  uint64_t steps;
  uint64_t prompt_tokens, prompt_hits; /* of those submitted, those found in the prefix cache */
  uint64_t computed_tokens;            /* that steps worked on, prompts computed again among them */
  uint64_t generated_tokens;
  uint64_t preemptions;                /* requests whose keys and values were given up for others */
  uint32_t waiting, running;           /* now */
  uint32_t kv_blocks, kv_blocks_held;  /* of the pool; now held by requests */
  uint64_t swaps;                      /* preemptions that kept keys and values in host memory */
  uint64_t waited_ns;                  /* of the time in lathe_llm_step(), that in which it waited for a GPU */
} lathe_llm_counters;
LATHE_API void lathe_llm_get_counters(const lathe_llm *, lathe_llm_counters *out);

#ifdef __cplusplus
}
#endif
#endif /* LATHE_RUNTIME_LATHE_LLM_H */
