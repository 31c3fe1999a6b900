//! What a store promises, held against a disk that does its worst.

mod contract;
mod crashes;
mod damage;
mod disks;
mod failures;
mod life;
mod oracle;
