//! The rescue file: runtime data of a stack that a run could not store (the Terraform state, encrypted as in the
//! store). The file stays on this machine until the next run uses it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::RunContext;
use konverge_base::{
    atomic_file,
    error::{ErrorKind, UserError},
    model::{Digest, StackId, state::StackState},
    variables,
};
use konverge_state::store::Key;

const VERSION: u32 = 1;

/// The rescue file of one stack.
#[derive(Debug, Clone)]
pub struct Rescue {
    path: PathBuf,
    stack: StackId,
}

/// The content of the rescue file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RescueDocument {
    version: u32,
    stack: StackId,
    data: BTreeMap<String, RescueFile>,
}

/// The data of one runtime that is newer than the stored data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RescueFile {
    /// The digests of the stored data that may be replaced by `value`. With any other digest, another run has written
    /// since.
    follows: Vec<Digest>,
    value: Value,
}

impl Rescue {
    /// Returns the rescue file of a stack; `None` if the environment has no folder for such files.
    pub fn open_for(run: &RunContext, repository: &str, stack: &StackId) -> Option<Self> {
        let folder = run.xdg_folder(variables::XDG_STATE_HOME, ".local/state").ok()?;
        let name = format!("{}.json", Key::from_components(&[stack.as_str()]).as_str());
        Some(Self {
            path: folder
                .join("rescue")
                .join(Key::from_components(&[repository]).as_str())
                .join(name),
            stack: stack.clone(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the data that an earlier run could not store to a state. Returns true if there was such data.
    ///
    /// # Errors
    /// The file cannot be read, or another run changed the state in the meantime.
    pub fn take_up(&self, state: &mut StackState) -> Result<bool, UserError> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.failure(format!("cannot be read: {error}"))),
        };
        // The message of the JSON parser is dropped, because it could quote the content of the file.
        let document: RescueDocument =
            serde_json::from_slice(&text).map_err(|_| self.failure("is damaged".to_owned()))?;
        if document.version != VERSION || document.stack != self.stack {
            return Err(self.failure("is of another version or another stack".to_owned()));
        }
        let follows = |(key, saved): (&String, &RescueFile)| {
            let stored = state.runtime.get(key);
            stored == Some(&saved.value) || saved.follows.contains(&digest(stored))
        };
        if !document.data.iter().all(follows) {
            return Err(self.failure("is outdated: another run has changed the state since then".to_owned()));
        }
        let data = document.data.into_iter();
        state.runtime.extend(data.map(|(key, saved)| (key, saved.value)));
        state.input_digest = None;
        Ok(true)
    }

    fn failure(&self, what: String) -> UserError {
        UserError::new(
            ErrorKind::State,
            format!("`{}` has data that an earlier run of `{}` could not store, but the file {what}", self.path.display(), self.stack),
        )
        .hint("compare the ids that the earlier run printed with what exists at the provider: import an object with \
               `kusionstack.io/import-id` in the extensions of its resource, or delete it by hand")
        .hint(format!("then delete `{}` and run the same command again", self.path.display()))
    }

    fn write(&self, data: &BTreeMap<String, RescueFile>) -> std::io::Result<()> {
        let document = RescueDocument {
            version: VERSION,
            stack: self.stack.clone(),
            data: data.clone(),
        };
        atomic_file::write_durable(&self.path, serde_json::to_string(&document)?.as_bytes())
    }

    /// Deletes the file. Called once the store has all data.
    pub fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.path.display(), "the rescue file could not be deleted");
        }
    }
}

fn digest(value: Option<&Value>) -> Digest {
    Digest::of_json(value.unwrap_or(&Value::Null))
}

/// Tracks which runtime data the store has accepted, and keeps the rescue file while some is missing there.
pub(crate) struct Unstored {
    rescue: Option<Rescue>,
    /// The runtime data that the store has.
    stored: BTreeMap<String, Value>,
    lacking: BTreeMap<String, RescueFile>,
    /// True if a rescue file exists, from this run or an earlier one.
    file: bool,
    /// The reason why the file could not be written.
    trouble: Option<String>,
}

impl Unstored {
    /// Creates the tracker at the start of an apply.
    ///
    /// `stored` is the runtime data as the store has it, without the rescue file. `taken_up` is true if an earlier run
    /// left a rescue file and its data was added to the prior state.
    pub(crate) fn new(rescue: Option<Rescue>, stored: BTreeMap<String, Value>, taken_up: bool) -> Self {
        Self {
            rescue,
            stored,
            lacking: BTreeMap::new(),
            file: taken_up,
            trouble: None,
        }
    }

    /// Marks a value as being stored. Until the write succeeds, it is unknown whether the store has the value.
    pub(crate) fn begin_store(&mut self, key: &str, value: &Value) {
        let before = self.lacking.remove(key);
        let follows = match before {
            Some(mut before) => {
                before.follows.push(digest(Some(&before.value)));
                before.follows
            }
            None => vec![digest(self.stored.get(key))],
        };
        let value = value.clone();
        self.lacking.insert(key.to_owned(), RescueFile { follows, value });
        if self.file {
            self.write_file();
        }
    }

    /// Writes the file, because the store is slow or failed.
    pub(crate) fn write_file(&mut self) {
        self.trouble = match &self.rescue {
            None => Some("neither XDG_STATE_HOME nor HOME is set".to_owned()),
            Some(rescue) => rescue.write(&self.lacking).err().map(|error| error.to_string()),
        };
        self.file |= self.trouble.is_none();
    }

    /// Marks a value as stored.
    pub(crate) fn end_store(&mut self, key: &str) {
        if let Some(saved) = self.lacking.remove(key) {
            self.stored.insert(key.to_owned(), saved.value);
        }
        if self.lacking.is_empty() {
            self.all_stored();
        }
    }

    /// Marks all values as stored, and deletes the file.
    pub(crate) fn all_stored(&mut self) {
        self.lacking.clear();
        self.trouble = None;
        if std::mem::take(&mut self.file)
            && let Some(rescue) = &self.rescue
        {
            rescue.remove();
        }
    }

    /// Returns a hint for the error of the run if the store lacks some data.
    pub(crate) fn hint(&self) -> Option<String> {
        if self.lacking.is_empty() {
            return None;
        }
        let rescue = self.rescue.as_ref();
        Some(match (&self.trouble, rescue) {
            (None, Some(rescue)) => format!(
                "the data that could not be stored is in `{}`, encrypted. Run the same command again on this machine, or copy the file to the same path on another machine first",
                rescue.path().display()
            ),
            (trouble, _) => format!(
                "the data could not be saved in a file either ({}): adopt the objects named above with \
                 `kusionstack.io/import-id` in the extensions of their resources",
                trouble.as_deref().unwrap_or("there is no folder for the file")
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::RepoPath;
    use serde_json::json;

    const KEY: &str = "a/runtime";

    fn place() -> (tempfile::TempDir, Rescue) {
        let folder = tempfile::TempDir::new().unwrap();
        let rescue = Rescue {
            path: folder.path().join("below").join("stack.json"),
            stack: "shop/prod".parse().unwrap(),
        };
        (folder, rescue)
    }

    fn state(value: Option<Value>) -> StackState {
        let mut state = StackState::empty("shop/prod".parse().unwrap(), RepoPath::root());
        state.runtime.extend(value.map(|value| (KEY.to_owned(), value)));
        state.input_digest = Some(Digest::of_bytes(b"x"));
        state
    }

    /// A run that stored `one` and could not store `two` and `three`.
    fn left(rescue: &Rescue) {
        let mut unstored = Unstored::new(Some(rescue.clone()), BTreeMap::new(), false);
        unstored.begin_store(KEY, &json!("one"));
        unstored.end_store(KEY);
        assert!(!rescue.path().exists() && unstored.hint().is_none());
        for value in ["two", "three"] {
            unstored.begin_store(KEY, &json!(value));
            unstored.write_file();
        }
        assert!(unstored.hint().unwrap().contains("stack.json"));
    }

    #[test]
    fn what_follows_is_taken_up_and_nothing_else() {
        let (_folder, rescue) = place();
        let mut untouched = state(Some(json!("one")));
        assert!(!rescue.take_up(&mut untouched).unwrap());
        assert!(untouched.input_digest.is_some());
        left(&rescue);
        // An attempt whose answer was lost may have been stored.
        for stored in ["one", "two", "three"] {
            let mut state = state(Some(json!(stored)));
            assert!(rescue.take_up(&mut state).unwrap(), "{stored}");
            assert_eq!(
                (state.runtime[KEY].clone(), state.input_digest),
                (json!("three"), None)
            );
        }
        for other in [None, Some(json!("another"))] {
            let refusal = rescue.take_up(&mut state(other)).unwrap_err();
            assert!(refusal.hints[0].contains("import-id"), "{refusal:?}");
        }
    }

    #[test]
    fn the_file_goes_when_the_store_has_it_all() {
        let (_folder, rescue) = place();
        left(&rescue);
        let mut taken_up = state(Some(json!("one")));
        let stored = taken_up.runtime.clone();
        rescue.take_up(&mut taken_up).unwrap();
        let mut unstored = Unstored::new(Some(rescue.clone()), stored, true);
        unstored.begin_store(KEY, &json!("four"));
        // Killed here, with the write stored or not.
        for stored in ["one", "four"] {
            let mut next = state(Some(json!(stored)));
            assert!(rescue.take_up(&mut next).unwrap(), "{stored}");
            assert_eq!(next.runtime[KEY], "four");
        }
        unstored.end_store(KEY);
        assert!(!rescue.path().exists());
    }

    #[test]
    fn a_damaged_file_stops_the_stack() {
        let (_folder, rescue) = place();
        left(&rescue);
        std::fs::write(rescue.path(), "{").unwrap();
        let refusal = rescue.take_up(&mut state(Some(json!("one")))).unwrap_err();
        assert!(refusal.message.contains("is damaged"), "{refusal}");
    }
}
