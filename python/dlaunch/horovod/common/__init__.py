"""Names that programs import from horovod.common."""
