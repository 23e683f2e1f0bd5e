//! onlooker-bench
fn main() {}
