"""Makes tensors smaller before they are reduced."""

import tensorflow as tf


class NoneCompressor:
    """Does not change tensors."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class FP16Compressor:
    """Sends floats as float16."""

    @staticmethod
    def compress(tensor):
        return (tf.cast(tensor, tf.float16), tensor.dtype) if tensor.dtype.is_floating else (tensor, None)

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
