//! One driver at a time works in a folder of results.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
    thread,
    time::Duration,
};

/// A driver that was just killed may hold it for a moment more, while the kernel takes it apart: it is tried so often again,
const TRIES: usize = 100;
/// after so long.
const PAUSE: Duration = Duration::from_millis(20);

/// The name of the file.
const LOCK: &str = "lock";

/// Held for as long as the run goes on; the kernel takes it back from a driver that is killed.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not used")] File);

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another driver has it.
    #[error("the run still goes on: the driver with pid {0} works in this folder")]
    Held(String),
    /// It cannot be made.
    #[error("failed to lock the folder: {0}")]
    Io(#[from] std::io::Error),
}

impl Lock {
    /// Takes it.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let mut file = File::options().create(true).truncate(false).read(true).write(true).open(folder.join(LOCK))?;
        let mut locked = file.try_lock();
        for _ in 0..TRIES {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            thread::sleep(PAUSE);
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid)?;
                return Err(LockError::Held(pid.trim().to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self(file))
    }

    /// The driver that works in the folder, if one does.
    pub fn holder(folder: &Path) -> Option<String> {
        let mut file = File::open(folder.join(LOCK)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).ok()?;
                Some(pid.trim().to_owned())
            }
            _ => None,
        }
    }
}
