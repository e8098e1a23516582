//! `state.encrypt_to`: to whom states are encrypted.

use super::{
    key_recipients::{StateRecipient, keys_problem},
    secrets::SecretsConfig,
    types::State,
};

impl State {
    /// To whom states are encrypted. Entries that are not understood were refused when the file was read.
    pub fn recipients(&self) -> Vec<(&str, StateRecipient)> {
        let texts = self.encrypt_to.iter().map(|text| text.trim());
        texts
            .filter_map(|text| Some((text, StateRecipient::parse(text).ok()?)))
            .collect()
    }

    /// The first problem of `encrypt_to`, with what to do about it.
    pub(super) fn recipients_problem(&self, secrets: &SecretsConfig) -> Option<(String, String)> {
        keys_problem("state.encrypt_to", &self.encrypt_to, |store| {
            secrets.is_vault(store)
        })
    }
}
