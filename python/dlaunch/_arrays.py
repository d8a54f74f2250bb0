"""New arrays for results. Imports NumPy when it is first needed."""


def empty(like, shape):
    """An array of this shape, with the element type of `like`: a tensor for a tensor of PyTorch, an array of CuPy for
    one of CuPy, and a NumPy array for everything else."""
    kind = type(like).__module__.partition(".")[0]
    if kind == "torch" or hasattr(like, "new_empty"):
        return like.new_empty(shape)
    if kind == "cupy":
        import cupy
        return cupy.empty(shape, like.dtype)
    try:
        import numpy
    except ImportError as error:
        raise ImportError("the result is a NumPy array, and NumPy is not installed: install it (pip install "
                          "numpy), or give out=") from error
    dtype = getattr(like, "dtype", None)
    if dtype is None:  # bytes, for example, which NumPy itself treats as a string
        try:
            like = memoryview(like)
        except TypeError:
            pass  # no buffer, but __array_interface__
    return numpy.empty(shape, dtype if isinstance(dtype, numpy.dtype) else numpy.asarray(like).dtype)
