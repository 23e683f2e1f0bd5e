//! onlooker-counts-api
