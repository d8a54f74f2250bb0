"""New arrays for results, arrays for functions that reduce, and the bytes of tensors. Imports NumPy when it is first
needed."""


def bytes_of(tensor):
    """A copy of the bytes of a contiguous tensor of PyTorch in the host's memory, also without NumPy."""
    import ctypes
    size = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * size).from_address(tensor.data_ptr()).raw if size else b""


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


def combine(function, left, right, dtype):
    """Sets the values of the memoryview `right` to function(left, right), where both have elements of the type that
    NumPy or ml_dtypes call `dtype`.

    The function gets copies: it, its exception and the frames of the traceback may keep them, while the library uses
    the memory of the views for other values after this call."""
    import numpy
    if hasattr(numpy, dtype):
        kind = getattr(numpy, dtype)
    else:
        import ml_dtypes
        kind = getattr(ml_dtypes, dtype)
    with left, right:
        values = bytearray(right)
        a, b = numpy.frombuffer(bytes(left), numpy.uint8).view(kind), numpy.frombuffer(values, numpy.uint8).view(kind)
        result = function(a, b)
        if result is not None and result is not b:
            result = numpy.asarray(result)
            if result.shape != b.shape:
                raise ValueError(f"Op: the function returned an array of shape {result.shape}, and needs {b.shape}")
            b[...] = result
        right[:] = values
