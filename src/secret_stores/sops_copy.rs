//! Which files of SOPS are copies of each other. A file is not bound to its path, but nobody can wrap its data key
//! again without having it: a copy has the same wrapped keys, whatever else was changed in it.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::sops_file::{SopsDataKey, SopsFile, armoured_bytes};

/// The number of base64 characters in a line of an armoured age file.
const ARMOUR_LINE: usize = 64;

/// What a file of SOPS has in common with its copies: a part of each wrapped data key, as SOPS writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SopsFileMark(Vec<String>);

impl SopsFileMark {
    /// The mark of a file. `None` if it is no file of SOPS, or says its own path, which is checked when it is read.
    pub fn of(path: &str, bytes: &[u8]) -> Option<Self> {
        let file = SopsFile::parse(path, bytes).ok()?;
        if file.has_own_path() {
            return None;
        }
        let keys = file.wrapped_keys();
        Some(Self(keys.iter().filter_map(mark).collect()))
    }

    /// Returns true if a file of any format has one of the wrapped keys.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        self.0.iter().any(|mark| text.contains(mark))
    }
}

/// A part of a wrapped key that stands on one line of the file.
fn mark(key: &SopsDataKey) -> Option<String> {
    match key {
        SopsDataKey::Age(armoured) => {
            let text = STANDARD.encode(armoured_bytes(armoured)?);
            // The first line is mostly the header of the format.
            text.get(ARMOUR_LINE..2 * ARMOUR_LINE).map(str::to_owned)
        }
        SopsDataKey::AwsKms { wrapped, .. }
        | SopsDataKey::GoogleKms { wrapped, .. }
        | SopsDataKey::AzureKeyVault { wrapped, .. } => Some(wrapped.clone()),
        SopsDataKey::VaultTransit { wrapped, .. } => wrapped.rsplit(':').next().map(str::to_owned),
        SopsDataKey::Unknown(_) => None,
    }
}
