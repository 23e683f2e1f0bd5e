//! onlooker-testkit
