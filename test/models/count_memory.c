/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Counts memory between count_begin() and count_end(), preloaded into a process (LD_PRELOAD) with glibc: all that is
 * asked for aligned, as devices ask for it, and what else is larger than any bookkeeping. Alive at the end. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void __libc_free(void *);

enum { MOST = 4096, BOOKKEEPING = 65536 };
static struct {
  void *memory;
  size_t bytes;
} pieces[MOST];
static size_t count, total;
static int counts;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *noted(void *memory, size_t bytes, size_t least) {
  if (!memory || bytes < least || !__atomic_load_n(&counts, __ATOMIC_ACQUIRE))
    return memory;
  pthread_mutex_lock(&mutex);
  if (count < MOST) {
    pieces[count].memory = memory;
    pieces[count++].bytes = bytes;
  }
  total += bytes;
  pthread_mutex_unlock(&mutex);
  return memory;
}

static void forget(void *memory) {
  if (!memory || !__atomic_load_n(&counts, __ATOMIC_ACQUIRE))
    return;
  pthread_mutex_lock(&mutex);
  for (size_t i = 0; i < count; ++i)
    if (pieces[i].memory == memory) {
      total -= pieces[i].bytes;
      pieces[i] = pieces[--count];
      break;
    }
  pthread_mutex_unlock(&mutex);
}

void count_begin(void) {
  count = total = 0;
  __atomic_store_n(&counts, 1, __ATOMIC_RELEASE);
}
/* Bytes; more pieces than there is room for are an error, (size_t)-1. */
size_t count_end(void) {
  __atomic_store_n(&counts, 0, __ATOMIC_RELEASE);
  return count < MOST ? total : (size_t)-1;
}

void *malloc(size_t bytes) { return noted(__libc_malloc(bytes), bytes, BOOKKEEPING); }
void *calloc(size_t n, size_t each) { return noted(__libc_calloc(n, each), n * each, BOOKKEEPING); }
void *realloc(void *old, size_t bytes) {
  forget(old);
  return noted(__libc_realloc(old, bytes), bytes, BOOKKEEPING);
}
void *memalign(size_t alignment, size_t bytes) { return noted(__libc_memalign(alignment, bytes), bytes, 0); }
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **out, size_t alignment, size_t bytes) {
  void *memory = memalign(alignment, bytes);
  if (memory)
    *out = memory;
  return memory ? 0 : ENOMEM;
}
void free(void *memory) {
  forget(memory);
  __libc_free(memory);
}
