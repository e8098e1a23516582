//! Lists with several pages. Some of Gitea's lists have no links to further pages, a server may return fewer items
//! than requested, and items that the token cannot see are counted but left out.

use http::{HeaderMap, Method};
use konverge_forge::Result;
use konverge_rest::TokenPermission;
use serde::{Deserialize, de::DeserializeOwned};

use crate::client::Client;

/// The number of items to request for a page: the default maximum of Gitea.
const PAGE: usize = 50;

/// The maximum number of pages of a list.
const MOST_PAGES: usize = 200;

impl Client {
    /// Returns the number of items on a page of this server. Requested once and then cached.
    pub(super) async fn page_size(&self) -> Result<usize> {
        #[derive(Deserialize)]
        struct Settings {
            max_response_items: usize,
        }
        let asked = || async {
            let settings: Settings = self
                .rest
                .get("/settings/api", TokenPermission("read:misc"))
                .await?;
            Ok(settings.max_response_items.clamp(1, PAGE))
        };
        self.learned.page.get_or_try_init(asked).await.copied()
    }

    /// Reads the items of all pages.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for page in 1..=MOST_PAGES {
            let Page { items, is_last } = self.page(path, need, page, all.len()).await?;
            all.extend(items);
            if is_last {
                return Ok(all);
            }
        }
        let cause = format!("more than {MOST_PAGES} pages");
        Err(self.rest.malformed(format!("GET {path}"), cause))
    }

    /// Reads one page, from 1. `before` is the number of items on earlier pages.
    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
        page: usize,
        before: usize,
    ) -> Result<Page<T>> {
        let size = self.page_size().await?;
        let more = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{more}limit={size}&page={page}");
        let answer = self.rest.repeatable(Method::GET, &path, None, need).await?;
        let items: Vec<T> = self.rest.read(&format!("GET {path}"), &answer)?;
        let is_last = match total(&answer.headers) {
            // The total also counts hidden items, so the number of received items may never reach it. Therefore an
            // empty page ends the list too.
            Some(total) => page * size >= total && (items.is_empty() || before + items.len() >= total),
            None => items.is_empty(),
        };
        Ok(Page { items, is_last })
    }
}

/// A page of a list.
pub(super) struct Page<T> {
    /// The items on the page.
    pub(super) items: Vec<T>,
    /// True if this is the last page.
    pub(super) is_last: bool,
}

fn total(headers: &HeaderMap) -> Option<usize> {
    headers.get("x-total-count")?.to_str().ok()?.parse().ok()
}
