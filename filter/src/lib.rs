//! onlooker-filter
