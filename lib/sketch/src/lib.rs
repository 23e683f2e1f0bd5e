//! onlooker-sketch
