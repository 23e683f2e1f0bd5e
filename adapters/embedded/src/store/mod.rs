//! Memory and archive: claims, sketches and numbers.
