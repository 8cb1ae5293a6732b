//! A disk with a write cache that forgets: what the guest wrote and did not flush is lost in part when the plug is pulled.
//!
//! Killing an emulator alone loses nothing that the guest has handed over, since the host's page cache lives on. So
//! the guest's disk is a block server (NBD over a Unix socket) that keeps writes in memory until a flush, and on a cut
//! keeps or forgets each sector by chance, in any order, as a disk's own cache may.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use super::chance::Chance;

const SECTOR: usize = 512;

/// The longest request that is taken; qemu sends 32 MiB at most.
const REQUEST_MAX: u32 = 64 << 20;

// The protocol's own numbers (NBD, "fixed newstyle").
const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const ANSWER_MAGIC: u32 = 0x6744_6698;
const HAS_FLUSH_AND_FUA: u16 = 1 | 4 | 8;

/// What a cut has done.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Lost {
    /// Sectors that had been written and not flushed.
    pub(super) pending: usize,
    /// Those of them that were forgotten.
    pub(super) forgotten: usize,
}

/// What the disk does when it is told to flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushes {
    /// What it says.
    Kept,
    /// What it says only before this sector; behind it, it says so and does nothing. No promise can be kept there.
    LiedFrom(u64),
}

/// The server of one life of the box.
pub(super) struct Plug {
    socket: PathBuf,
    serving: JoinHandle<io::Result<Lost>>,
}

impl Plug {
    /// Serves the disk to one guest.
    pub(super) fn of(disk: &Path, socket: &Path, flushes: Flushes, chance: Chance) -> Result<Plug, String> {
        let told = |e: io::Error| format!("{}: {e}", socket.display());
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).map_err(told)?;
        let file = File::options().read(true).write(true).open(disk).map_err(|e| format!("{}: {e}", disk.display()))?;
        let serving = std::thread::spawn(move || {
            let (guest, _) = listener.accept()?;
            Served { file, flushes, pending: BTreeMap::new() }.serve(guest, chance)
        });
        Ok(Plug { socket: socket.to_path_buf(), serving })
    }

    /// The disk as qemu names it.
    pub(super) fn address(&self) -> String {
        format!("nbd:unix:{}", self.socket.display())
    }

    /// After the guest was killed: what it cost.
    pub(super) fn pulled(self) -> Result<Lost, String> {
        match self.serving.join() {
            Ok(ended) => ended.map_err(|e| format!("the disk's server: {e}")),
            Err(_) => Err("the disk's server panicked".to_owned()),
        }
    }
}

struct Served {
    file: File,
    flushes: Flushes,
    /// Written, not flushed: by sector.
    pending: BTreeMap<u64, [u8; SECTOR]>,
}

impl Served {
    fn serve(mut self, mut guest: UnixStream, mut chance: Chance) -> io::Result<Lost> {
        if self.agreed(&mut guest)? {
            // However the guest ends, its plug is pulled.
            while let Ok(true) = self.request(&mut guest) {}
        }
        self.cut(&mut chance)
    }

    /// The handshake, up to the choice of the one disk.
    fn agreed(&self, guest: &mut UnixStream) -> io::Result<bool> {
        guest.write_all(b"NBDMAGICIHAVEOPT")?;
        guest.write_all(&3_u16.to_be_bytes())?;
        let _flags = number::<4>(guest)?;
        let size = self.file.metadata()?.len();
        loop {
            if u64::from_be_bytes(number(guest)?) != OPTION_MAGIC {
                return Ok(false);
            }
            let option = u32::from_be_bytes(number(guest)?);
            let length = u32::from_be_bytes(number(guest)?);
            io::copy(&mut guest.take(u64::from(length)), &mut io::sink())?;
            let mut export = size.to_be_bytes().to_vec();
            export.extend(HAS_FLUSH_AND_FUA.to_be_bytes());
            match option {
                1 => return guest.write_all(&export).map(|()| true),
                2 => return Ok(false),
                6 | 7 => {
                    let mut information = 0_u16.to_be_bytes().to_vec();
                    information.extend(export);
                    reply(guest, option, 3, &information)?;
                    reply(guest, option, 1, &[])?;
                    if option == 7 {
                        return Ok(true);
                    }
                }
                _ => reply(guest, option, 0x8000_0001, &[])?,
            }
        }
    }

    /// One request; false when the guest takes its leave.
    fn request(&mut self, guest: &mut UnixStream) -> io::Result<bool> {
        if u32::from_be_bytes(number(guest)?) != REQUEST_MAGIC {
            return Ok(false);
        }
        let flags = u16::from_be_bytes(number(guest)?);
        let kind = u16::from_be_bytes(number(guest)?);
        let handle: [u8; 8] = number(guest)?;
        let offset = u64::from_be_bytes(number(guest)?);
        let length = u32::from_be_bytes(number(guest)?);
        if length > REQUEST_MAX {
            return Ok(false);
        }
        let mut content = vec![0_u8; if kind <= 1 { length as usize } else { 0 }];
        let done = match kind {
            0 => self.read(offset, &mut content),
            1 => {
                guest.read_exact(&mut content)?;
                self.write(offset, &content)
            }
            2 => return Ok(false),
            3 => self.flushed(),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        let done = if flags & 1 != 0 && kind == 1 { done.and_then(|()| self.flushed()) } else { done };
        guest.write_all(&ANSWER_MAGIC.to_be_bytes())?;
        // EIO and EINVAL, as Linux numbers them.
        let code = match &done {
            Ok(()) => 0_u32,
            Err(e) if e.kind() == io::ErrorKind::Unsupported => 22,
            Err(_) => 5,
        };
        guest.write_all(&code.to_be_bytes())?;
        guest.write_all(&handle)?;
        if kind == 0 && code == 0 {
            guest.write_all(&content)?;
        }
        Ok(true)
    }

    fn read(&self, offset: u64, content: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(content, offset)?;
        let (first, last) = (offset / SECTOR as u64, (offset + content.len() as u64).div_ceil(SECTOR as u64));
        for (sector, bytes) in self.pending.range(first..last) {
            let at = sector * SECTOR as u64;
            let (from, to) = (at.max(offset), (at + SECTOR as u64).min(offset + content.len() as u64));
            let place = |position: u64, base: u64| usize::try_from(position - base).unwrap_or(usize::MAX);
            content[place(from, offset)..place(to, offset)].copy_from_slice(&bytes[place(from, at)..place(to, at)]);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, content: &[u8]) -> io::Result<()> {
        if !offset.is_multiple_of(SECTOR as u64) || !content.len().is_multiple_of(SECTOR) {
            // Part of a sector: nothing of it can be pending alone.
            self.flush()?;
            return self.file.write_all_at(content, offset);
        }
        for (sector, bytes) in (offset / SECTOR as u64..).zip(content.chunks_exact(SECTOR)) {
            let mut kept = [0_u8; SECTOR];
            kept.copy_from_slice(bytes);
            self.pending.insert(sector, kept);
        }
        Ok(())
    }

    /// The guest asks for it.
    fn flushed(&mut self) -> io::Result<()> {
        match self.flushes {
            Flushes::Kept => self.flush(),
            Flushes::LiedFrom(sector) => {
                let behind = self.pending.split_off(&sector);
                let done = self.flush();
                self.pending.extend(behind);
                done
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some((sector, bytes)) = self.pending.pop_first() {
            self.file.write_all_at(&bytes, sector * SECTOR as u64)?;
        }
        Ok(())
    }

    /// Each sector is kept or forgotten; how many of them is by chance too, from all to none.
    fn cut(mut self, chance: &mut Chance) -> io::Result<Lost> {
        let kept_of_8 = chance.below(9);
        let mut lost = Lost { pending: self.pending.len(), forgotten: 0 };
        while let Some((sector, bytes)) = self.pending.pop_first() {
            if chance.below(8) < kept_of_8 {
                self.file.write_all_at(&bytes, sector * SECTOR as u64)?;
            } else {
                lost.forgotten += 1;
            }
        }
        Ok(lost)
    }
}

fn reply(guest: &mut UnixStream, option: u32, kind: u32, content: &[u8]) -> io::Result<()> {
    let length = u32::try_from(content.len()).map_err(io::Error::other)?;
    guest.write_all(&REPLY_MAGIC.to_be_bytes())?;
    for word in [option, kind, length] {
        guest.write_all(&word.to_be_bytes())?;
    }
    guest.write_all(content)
}

fn number<const N: usize>(from: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0_u8; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(name: &str) -> Served {
        let path = std::env::temp_dir().join(format!("interlock-plug-{}-{name}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).expect("a file");
        file.set_len(64 << 10).expect("room");
        Served { file, flushes: Flushes::Kept, pending: BTreeMap::new() }
    }

    fn on_disk(served: &Served, offset: u64, length: usize) -> Vec<u8> {
        let mut content = vec![0_u8; length];
        served.file.read_exact_at(&mut content, offset).expect("content");
        content
    }

    #[test]
    fn what_is_written_is_read_and_lies_on_the_disk_after_a_flush_only() {
        let mut served = served("flush");
        served.write(512, &[7; 1024]).expect("written");
        let mut content = [0_u8; 700];
        served.read(400, &mut content).expect("read");
        assert_eq!((content[111], content[112], content[699]), (0, 7, 7));
        assert_eq!(on_disk(&served, 512, 1024), vec![0; 1024]);
        served.flush().expect("flushed");
        assert_eq!(on_disk(&served, 512, 1024), vec![7; 1024]);
    }

    #[test]
    fn a_disk_that_lies_keeps_what_lies_before() {
        let mut served = served("lies");
        served.flushes = Flushes::LiedFrom(4);
        served.write(0, &[9; 4096]).and_then(|()| served.flushed()).expect("flushed, it says");
        assert_eq!(on_disk(&served, 0, 2048), vec![9; 2048]);
        assert_eq!(on_disk(&served, 2048, 2048), vec![0; 2048]);
        assert_eq!(served.pending.len(), 4);
    }

    #[test]
    fn a_cut_forgets_what_was_not_flushed_and_nothing_else() {
        let (mut all, mut none) = (0, 0);
        for seed in 0..40 {
            let mut served = served(&format!("cut-{seed}"));
            served.write(0, &[1; 4096]).and_then(|()| served.flush()).expect("flushed");
            served.write(4096, &[2; 4096]).expect("written");
            let file = served.file.try_clone().expect("the file");
            let lost = served.cut(&mut Chance::of(seed)).expect("cut");
            let after = Served { file, flushes: Flushes::Kept, pending: BTreeMap::new() };
            assert_eq!(on_disk(&after, 0, 4096), vec![1; 4096]);
            let kept = on_disk(&after, 4096, 4096).chunks(SECTOR).filter(|sector| sector[0] == 2).count();
            assert_eq!((lost.pending, lost.forgotten), (8, 8 - kept));
            all += usize::from(kept == 8);
            none += usize::from(kept == 0);
        }
        assert!(all > 0 && none > 0, "both ends occur: {all}, {none}");
    }
}
