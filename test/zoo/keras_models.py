# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Networks of keras for real.py, as tf2onnx writes them: seeded weights, rows counted by the run. Packages: tensorflow-cpu and
tf2onnx, in an environment of their own beside onnxruntime."""


def layer(name, *arguments, **options):
    import keras
    return getattr(keras.layers, name)(*arguments, **options)


def convolutions():
    return [layer("Conv2D", 8, 3, padding="same", activation="relu"), layer("MaxPooling2D"), layer("SeparableConv2D", 16, 3),
            layer("BatchNormalization"), layer("Conv2D", 16, 3, strides=2, padding="same", activation="swish"),
            layer("GlobalAveragePooling2D"), layer("Dense", 10, activation="softmax")]


def decoder():
    return [layer("Conv2D", 8, 3, strides=2, padding="same", activation="elu"), layer("Conv2DTranspose", 8, 3, strides=2, padding="same"),
            layer("UpSampling2D", interpolation="bilinear"), layer("DepthwiseConv2D", 3, padding="same"), layer("LayerNormalization"),
            layer("Conv2D", 3, 1, activation="sigmoid")]


def recurrent(kind):
    return lambda: [layer("Bidirectional", layer(kind, 12, return_sequences=True)), layer(kind, 8), layer("Dense", 3)]


def temporal():
    return [layer("Conv1D", 16, 3, dilation_rate=2, padding="causal", activation="swish"), layer("SpatialDropout1D", 0.1),
            layer("GroupNormalization", groups=4), layer("GlobalMaxPooling1D"), layer("Dense", 4)]


def attention():
    """A block of a transformer."""
    import keras
    x = keras.Input((9, 16))
    y = layer("LayerNormalization")(x + layer("MultiHeadAttention", 4, 4)(x, x))
    y = y + layer("Dense", 16)(layer("Dense", 32, activation="relu")(y))
    return keras.Model(x, layer("Dense", 5)(layer("Flatten")(y)))


def application(name, size):
    def make():
        import keras
        return getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10,
                                                classifier_activation=None)
    return make


def of_keras(make, shape):
    """What writes the file of a list of layers, or of a model, over inputs `shape` behind the rows."""
    def write(path):
        import keras
        import onnx
        import tensorflow
        import tf2onnx
        keras.utils.set_random_seed(0)
        made = make()
        model = keras.Sequential([keras.Input(shape), *made]) if isinstance(made, list) else made
        sizes = [tensorflow.TensorSpec((None, *shape), tensorflow.float32, name="x")]
        function = tensorflow.function(lambda x: model(x, training=False), input_signature=sizes)
        proto, _ = tf2onnx.convert.from_function(function, input_signature=sizes, opset=18)
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
        onnx.save(proto, path)
    return write


# name: what writes its file
KERAS = {
    "convolutions": of_keras(convolutions, (32, 32, 3)),
    "decoder": of_keras(decoder, (17, 12, 3)),
    "lstm": of_keras(recurrent("LSTM"), (11, 6)),
    "gru": of_keras(recurrent("GRU"), (11, 6)),
    "temporal": of_keras(temporal, (20, 8)),
    "attention": of_keras(attention, (9, 16)),
    "mobilenet": of_keras(application("MobileNetV3Small", 64), (64, 64, 3)),
}
