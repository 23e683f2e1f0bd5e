//! onlooker-ports
