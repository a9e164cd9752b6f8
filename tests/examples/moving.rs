//! `cargo run --release -p minflt-tests --example moving [STORES]`: in each era that moving pages
//! can tell apart, so many stores (ten million) while pages move from node to node without pause:
//! by calls, and by hinting faults where balancing is on.

use minflt_mm::eras_of_migration;
use minflt_tests::moving::run;

fn main() -> Result<(), core::num::ParseIntError> {
    let stores = std::env::args().nth(1);
    let stores = stores.map_or(Ok(10_000_000), |stores| stores.parse())?;
    for era in eras_of_migration() {
        println!("{}: {:?}", era.name, run(era.config, stores));
    }
    Ok(())
}
