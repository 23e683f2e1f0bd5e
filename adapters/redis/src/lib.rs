//! onlooker-redis
