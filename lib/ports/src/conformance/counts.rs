//! What every `CountStore` and `CountReader` keeps.
