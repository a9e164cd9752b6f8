//! The races that can be checked, as `docs/races.md` has them.

use super::Race;
use super::list::{STAYING, USUAL};
use super::list_huge::HUGE;
use super::list_moving::MOVING;

/// Every race that can be checked.
pub const RACES: &[Race] = &ALL;

const ALL: [Race; STAYING.len() + MOVING.len() + HUGE.len()] = {
    let mut all = [USUAL; STAYING.len() + MOVING.len() + HUGE.len()];
    let mut at = 0;
    while at < all.len() {
        let moving = STAYING.len();
        let huge = moving + MOVING.len();
        all[at] = if at < moving {
            STAYING[at]
        } else if at < huge {
            MOVING[at - moving]
        } else {
            HUGE[at - huge]
        };
        at += 1;
    }
    all
};
