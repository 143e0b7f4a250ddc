"""The compressors that come with the package, one file each."""
