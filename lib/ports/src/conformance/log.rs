//! What every log keeps.
