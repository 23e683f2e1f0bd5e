//! onlooker-scylla
