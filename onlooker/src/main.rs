//! onlooker
fn main() {}
