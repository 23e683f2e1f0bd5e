//! onlooker-event
