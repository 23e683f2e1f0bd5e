//! Which crate may import which: the walls of the house.

mod house;
mod rules;
#[cfg(test)]
mod tests;

use anyhow::{Result, bail};
use onlooker_testkit::java::workspace;

pub(crate) fn check() -> Result<()> {
    let house = house::House::read(workspace())?;
    let faults = rules::faults(&house);
    if !faults.is_empty() {
        bail!("the floor plan is broken:\n  {}", faults.join("\n  "));
    }
    println!("floor plan: {} crates keep their walls", house.crates.len());
    Ok(())
}
