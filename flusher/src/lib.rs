//! onlooker-flusher
