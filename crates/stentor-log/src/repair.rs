//! What is done when something is damaged: looking at all of it, and going on with what is left.

use crate::damage::{Damage, OpenError};
use crate::head::{self, DAMAGED, LOG, SNAPSHOT};
use crate::recovery::{Recovered, Recovery};
use crate::snapshot;
use stentor_io::Disk;

/// Reads everything, and tells what is damaged. Nothing is changed.
///
/// # Errors
/// The disk failed, or a file is of another version.
pub fn check<D: Disk>(disk: D) -> Result<Vec<Damage>, OpenError> {
    let recovered = Recovery::open_damaged(disk)?.read(&mut |_, _| Ok(()))?;
    Ok(recovered.damages)
}

/// Makes a store of whatever verifies, with a new EPOCH, if something is damaged. The files with
/// damages are kept aside, under names that begin with `damaged-`. Returns the damages.
///
/// # Errors
/// The disk failed, a file is of another version, or there is no room for the copy. All is as it
/// was, or is repaired and not tidied up.
pub fn repair<D: Disk>(disk: &D, epoch: u32) -> Result<Vec<Damage>, OpenError> {
    if check(disk.clone())?.is_empty() {
        return Ok(Vec::new());
    }
    let recovery = Recovery::open_damaged(disk.clone())?;
    let number = recovery.unused_number();
    let Recovered { damages, .. } = snapshot::copy(recovery, disk, number, epoch)?;
    // With its name the copy has taken the place of everything below its number.
    for (name, _) in disk.list()? {
        let found = head::number(LOG, &name).or_else(|| head::number(SNAPSHOT, &name));
        if found.is_none_or(|found| found >= number) {
            continue;
        }
        match damages.iter().any(|damage| damage.file == name) {
            true => disk.rename(&name, &format!("{DAMAGED}{name}"))?,
            false => disk.remove(&name)?,
        }
    }
    disk.sync_dir()?;
    Ok(damages)
}
