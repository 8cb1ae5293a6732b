//! ONNX Runtime for the model stage: the library and its licence out of its wheel, checked by hash, in the target
//! directory.
//!
//! The product works without it, so that a machine without a package index still builds and runs; the tests that need
//! it then say so by name.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::machine::must;

/// The pins of the library for the machine that we run on.
pub(crate) const PLAIN: &str = "onnxruntime.txt";

/// Takes the library and its licences out of the one wheel in a folder. Arguments: that folder, where to put them.
const TAKE_OUT: &str = "\
import glob, pathlib, sys, zipfile
folder, out = sys.argv[1:]
[wheel] = glob.glob(folder + '/*.whl')
with zipfile.ZipFile(wheel) as files:
    capi = [name for name in files.namelist() if '/capi/libonnxruntime' in name and '.so' in name]
    licences = [name for name in files.namelist() if name.rsplit('/', 1)[1] in ('LICENSE', 'ThirdPartyNotices.txt')]
    assert sum('libonnxruntime.so' in name for name in capi) == 1, capi
    for name in capi + licences:
        part = pathlib.Path(out, 'part')
        part.write_bytes(files.read(name))
        part.rename(pathlib.Path(out, name.rsplit('/', 1)[1]))
";

/// Brings the library of a processor into a place, unless what is there was brought from the same pins, which are a
/// file in `cross/`. `python` has pip.
pub(crate) fn bring(root: &Path, pins: &str, machine: &str, place: &Path, python: &Path) -> Result<(), String> {
    let pins = root.join("cross").join(pins);
    let pinned = fs::read_to_string(&pins).map_err(|e| format!("{}: {e}", pins.display()))?;
    let stamp = place.join("made-from.txt");
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == pinned) {
        return Ok(());
    }
    let wheels = place.join("wheels");
    let _ = fs::remove_dir_all(place);
    fs::create_dir_all(&wheels).map_err(|e| format!("{}: {e}", wheels.display()))?;
    let hint = "the model stage is off without it; put libonnxruntime.so.* there by hand, or set ORT_DYLIB_PATH";
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"])
        .args(["--only-binary=:all:", "--python-version", "3.11", "--require-hashes"])
        .args(["--platform", &format!("manylinux_2_28_{machine}")])
        .args(["--platform", &format!("manylinux_2_27_{machine}")])
        .arg("-r")
        .arg(&pins)
        .arg("-d")
        .arg(&wheels);
    must(&mut pip, hint)?;
    must(Command::new(python).args(["-c", TAKE_OUT]).arg(&wheels).arg(place), hint)?;
    let _ = fs::remove_dir_all(&wheels);
    fs::write(&stamp, pinned).map_err(|e| format!("{}: {e}", stamp.display()))
}
