//! onlooker-counter
