//! onlooker-stage
