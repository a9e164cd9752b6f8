//! What a CPU has is found out when a system starts.

use crate::{MachineFile, Sim, SimInstance, Size};
use minflt_mm::config::ExchangeBy;
use minflt_mm::{BootError, Config, System, eras_without_migration};
use minflt_pgtable::{Feature, I386, I386Pae, Paging, X86_64};

fn boot<P: Paging>(
    cpus: u32,
    lacking: &'static [Feature],
    config: Config,
) -> Result<ExchangeBy, BootError> {
    let file = MachineFile::shipped("explorer").unwrap();
    let size = Size {
        cpus,
        ram_bytes: 4 << 20,
        max_tasks: 1,
    };
    let machine = SimInstance::new(&file, size).unwrap();
    machine.set_lacking(lacking);
    System::<Sim<P>>::boot(machine, config).map(|sys| sys.config().exchange)
}

#[test]
fn an_old_cpu_emulates_in_every_era_and_a_newer_one_does_not() {
    for era in eras_without_migration() {
        let native = Ok(ExchangeBy::Native);
        let emulated = Ok(ExchangeBy::Emulated);
        let on_386: &[Feature] = &[Feature::Cmpxchg, Feature::Cmpxchg8b];
        let on_486: &[Feature] = &[Feature::Cmpxchg8b];
        assert_eq!(boot::<I386>(1, on_386, era.config), emulated);
        assert_eq!(boot::<I386>(1, on_486, era.config), native);
        assert_eq!(boot::<I386Pae>(1, on_486, era.config), emulated);
        assert_eq!(boot::<I386Pae>(2, &[], era.config), native);
        // A format that always has the instruction does not ask.
        assert_eq!(boot::<X86_64>(2, on_386, era.config), native);
    }
}

#[test]
fn emulation_beside_a_walker_of_another_cpu_is_refused() {
    let refused = BootError::Illegal(Config::EMULATED_BESIDE_HARDWARE);
    for era in eras_without_migration() {
        let got = boot::<I386>(2, &[Feature::Cmpxchg], era.config);
        assert_eq!(got, Err(refused));
    }
}
