//! What every `DedupStore` keeps.
