//! A filter of system calls for a tool's children: a list of what no command of a plant needs.
//!
//! Not a list of what is allowed: which calls a compiler or an interpreter makes is nobody's to know here, and the
//! service's own filter (`@system-service`) stands around it. What is named here either reaches into other processes and
//! the kernel, or goes round the rest of the sandbox. It answers EPERM, and ENOSYS where a program knows another way.

use std::io;

use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Refused whatever their arguments are.
const REFUSED: &[libc::c_long] = &[
    // Other processes: their memory, their descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // What is mounted where, and other name spaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Files by number instead of by place.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Keys.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The kernel itself, and ways round a filter.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_syslog,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// An old way to whole frames.
const SOCK_PACKET: libc::c_int = 10;

/// Kinds of sockets that are left: as the unit has it.
const FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Flags of `clone` that make a name space.
const NAME_SPACES: u32 = 0x7E02_0000;

/// Typing into a terminal, or into the console.
const TERMINAL: [u32; 2] = [0x5412, 0x541C];

/// The offsets of `struct seccomp_data`: the number, the architecture, the low words of the arguments.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// A program of the kernel's packet filter.
#[derive(Debug)]
pub(super) struct Filter(Vec<sock_filter>);

/// Whether the kernel takes filters.
#[must_use]
pub(super) fn is_there() -> bool {
    // SAFETY: it wants a program behind the null pointer and answers EFAULT where filters are known, else EINVAL.
    let answer =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::null::<libc::c_void>()) };
    answer != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

impl Filter {
    /// The filter of a tool's children.
    #[must_use]
    pub(super) fn new() -> Filter {
        let mut program = Program(Vec::new());
        // Another architecture has other numbers: nothing of it is run.
        program.load(ARCH);
        program.unless_equal(ARCHITECTURE, |then| then.refuse(libc::ENOSYS));
        program.load(NUMBER);
        #[cfg(target_arch = "x86_64")]
        program.if_any_bit(0x4000_0000, |then| then.refuse(libc::ENOSYS));
        for number in REFUSED {
            program.if_equal(word(*number), |then| then.refuse(libc::EPERM));
        }
        // Its flags lie in memory, where a filter cannot look; without it, libraries take `clone`.
        program.if_equal(word(libc::SYS_clone3), |then| then.refuse(libc::ENOSYS));
        program.if_equal(word(libc::SYS_clone), |then| {
            then.load(ARGUMENTS);
            then.if_any_bit(NAME_SPACES, |then| then.refuse(libc::EPERM));
            then.allow();
        });
        program.if_equal(word(libc::SYS_ioctl), |then| {
            then.load(ARGUMENTS + 8);
            for request in TERMINAL {
                then.if_equal(request, |then| then.refuse(libc::EPERM));
            }
            then.allow();
        });
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            program.if_equal(word(call), sockets);
        }
        program.allow();
        Filter(program.0)
    }

    /// Lays it on the calling thread and all that it starts.
    pub(super) fn lay_on(&self) -> io::Result<()> {
        let Ok(len) = u16::try_from(self.0.len()) else { return Err(io::ErrorKind::InvalidData.into()) };
        let program = libc::sock_fprog { len, filter: self.0.as_ptr().cast_mut() };
        // SAFETY: the program lives through the call, which copies it and writes nothing.
        let laid = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        if laid == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Default for Filter {
    fn default() -> Filter {
        Filter::new()
    }
}

fn sockets(then: &mut Program) {
    then.load(ARGUMENTS + 8);
    then.push(BPF_ALU | BPF_AND | BPF_K, 0xF);
    for raw in [libc::SOCK_RAW, SOCK_PACKET] {
        then.if_equal(raw.unsigned_abs(), |then| then.refuse(libc::EPERM));
    }
    then.load(ARGUMENTS);
    for family in FAMILIES {
        then.if_equal(family.unsigned_abs(), Program::allow);
    }
    then.refuse(libc::EAFNOSUPPORT);
}

fn word(number: libc::c_long) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A program that is being written: straight down, with blocks that are stepped over.
struct Program(Vec<sock_filter>);

impl Program {
    fn push(&mut self, code: u32, k: u32) {
        self.jump(code, k, 0, 0);
    }

    fn jump(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        self.0.push(sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.push(BPF_LD | BPF_W | BPF_ABS, offset);
    }

    fn allow(&mut self) {
        self.push(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW);
    }

    fn refuse(&mut self, errno: libc::c_int) {
        self.push(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | errno.unsigned_abs());
    }

    fn if_equal(&mut self, k: u32, then: impl FnOnce(&mut Program)) {
        let block = Program::block(then);
        self.jump(BPF_JMP | BPF_JEQ | BPF_K, k, 0, block.1);
        self.0.extend(block.0);
    }

    fn unless_equal(&mut self, k: u32, then: impl FnOnce(&mut Program)) {
        let block = Program::block(then);
        self.jump(BPF_JMP | BPF_JEQ | BPF_K, k, block.1, 0);
        self.0.extend(block.0);
    }

    fn if_any_bit(&mut self, bits: u32, then: impl FnOnce(&mut Program)) {
        let block = Program::block(then);
        self.jump(BPF_JMP | BPF_JSET | BPF_K, bits, 0, block.1);
        self.0.extend(block.0);
    }

    /// A block and its length. Blocks are a few instructions; a jump reaches 255.
    fn block(then: impl FnOnce(&mut Program)) -> (Vec<sock_filter>, u8) {
        let mut block = Program(Vec::new());
        then(&mut block);
        let length = u8::try_from(block.0.len()).unwrap_or(u8::MAX);
        (block.0, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_one_that_the_kernel_takes() {
        let Filter(program) = Filter::new();
        // 4096 are the most, and every way through it ends with an answer.
        assert!(program.len() < 4096);
        let returns = |at: &sock_filter| u32::from(at.code) == BPF_RET | BPF_K;
        assert!(program.last().is_some_and(returns));
        for (at, instruction) in program.iter().enumerate() {
            let furthest = at + 1 + usize::from(instruction.jt.max(instruction.jf));
            assert!(returns(instruction) || furthest < program.len(), "{at}");
        }
    }
}
