//! onlooker-schemas
