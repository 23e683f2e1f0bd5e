//! onlooker-kafka
