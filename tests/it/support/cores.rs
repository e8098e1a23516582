//! Two KCL cores side by side, as `konverge kcl install` leaves them.

use std::path::Path;

use konverge_base::checkout::Checkout;
use konverge_kcl::{DEFAULT_VERSION, Toolchain};

use super::kcl::{OLDER_VERSION, interpreter, older_interpreter};

/// Installs the recommended core and an earlier one below a folder, which is `XDG_DATA_HOME`.
pub async fn install_both(data: &Path) {
    for (version, interpreter) in [
        (DEFAULT_VERSION, interpreter()),
        (OLDER_VERSION, older_interpreter()),
    ] {
        let checkout = Checkout::default();
        let core = Toolchain::from_interpreter(&interpreter, version, &checkout);
        let core = serde_json::to_string(&core.await.unwrap()).unwrap();
        let folder = data.join("konverge/kcl").join(version);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("core.json"), core).unwrap();
    }
}

/// Removes one of them.
pub fn remove(data: &Path, version: &str) {
    std::fs::remove_dir_all(data.join("konverge/kcl").join(version)).unwrap();
}
