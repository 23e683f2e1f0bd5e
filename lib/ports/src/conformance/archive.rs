//! What every `Archive` keeps.
