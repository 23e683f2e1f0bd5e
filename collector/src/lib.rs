//! onlooker-collector
