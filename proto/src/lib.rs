//! onlooker-proto
