//! PostgreSQL and MySQL (MariaDB) as stores: one table of keys and contents.
//! `postgres://USER@HOST:PORT/DATABASE/PREFIX`; the password comes from `PGPASSWORD` or `MYSQL_PWD`.

mod kusion_table;

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{
    Connection, MySqlConnection, MySqlPool, PgConnection, PgPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode},
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};

use tokio::sync::OnceCell;

pub(super) use kusion_table::newest_kusion_state;

use super::{Created, Key, Store, StoreError, location::StoreLocation};
use konverge_base::{
    error::chain,
    retry::{RetryDecision, RetryPolicy},
    variables,
};

const CONNECTIONS: u32 = 8;
const DEADLINE: Duration = Duration::from_secs(30);
/// The maximum time to connect.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

struct SqlStore {
    url: String,
    prefix: String,
    pool: Pool,
    reached: OnceCell<()>,
    retry: RetryPolicy,
}

enum Pool {
    Postgres(PgPool),
    MySql(MySqlPool),
}

/// A statement in both dialects.
struct Statement {
    postgres: &'static str,
    mysql: &'static str,
}

const GET: Statement = Statement {
    postgres: "SELECT content FROM konverge_objects WHERE name = $1",
    mysql: "SELECT content FROM konverge_objects WHERE name = ?",
};
const LIST: Statement = Statement {
    postgres: "SELECT name FROM konverge_objects WHERE name >= $1 AND name < $2",
    mysql: "SELECT name FROM konverge_objects WHERE name >= ? AND name < ?",
};
const INSERT: Statement = Statement {
    postgres: "INSERT INTO konverge_objects (name, content) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    mysql: "INSERT INTO konverge_objects (name, content) VALUES (?, ?)",
};
const DELETE: Statement = Statement {
    postgres: "DELETE FROM konverge_objects WHERE name = $1",
    mysql: "DELETE FROM konverge_objects WHERE name = ?",
};
const MAKE_TABLE: Statement = Statement {
    postgres: "CREATE TABLE IF NOT EXISTS konverge_objects (name BYTEA PRIMARY KEY, content BYTEA NOT NULL)",
    mysql: "CREATE TABLE IF NOT EXISTS konverge_objects (name VARBINARY(1024) PRIMARY KEY, content LONGBLOB NOT NULL) ENGINE=InnoDB",
};

impl Pool {
    /// Runs a query and returns the first column of each row.
    async fn column(&self, statement: &Statement, values: &[&[u8]]) -> Result<Vec<Vec<u8>>, sqlx::Error> {
        match self {
            Self::Postgres(pool) => {
                let query = sqlx::query_scalar(statement.postgres);
                let bound = values.iter().fold(query, |query, value| query.bind(*value));
                bound.fetch_all(pool).await
            }
            Self::MySql(pool) => {
                let query = sqlx::query_scalar(statement.mysql);
                let bound = values.iter().fold(query, |query, value| query.bind(*value));
                bound.fetch_all(pool).await
            }
        }
    }

    /// Runs a statement and returns the number of rows that it wrote or deleted.
    async fn execute(&self, statement: &Statement, values: &[&[u8]]) -> Result<u64, sqlx::Error> {
        match self {
            Self::Postgres(pool) => {
                let query = sqlx::query(statement.postgres);
                let bound = values.iter().fold(query, |query, value| query.bind(*value));
                bound.execute(pool).await.map(|done| done.rows_affected())
            }
            Self::MySql(pool) => {
                let query = sqlx::query(statement.mysql);
                let bound = values.iter().fold(query, |query, value| query.bind(*value));
                bound.execute(pool).await.map(|done| done.rows_affected())
            }
        }
    }
}

/// Opens a database by the scheme of its URL. It connects at the first request.
pub(super) fn sql(place: &StoreLocation, scheme: &str) -> Result<Arc<dyn Store>, StoreError> {
    let (database, prefix) = match place.prefix.split_once('/') {
        Some((database, prefix)) => (database, prefix),
        None => (place.prefix.as_str(), ""),
    };
    if database.is_empty() {
        return Err(place.error(format!(
            "it names no database, as in {scheme}://user@host/database/prefix"
        )));
    }
    let pool = if scheme == "postgres" {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(DEADLINE);
        Pool::Postgres(pool.connect_lazy_with(postgres_options(place, database)))
    } else {
        let pool = MySqlPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(DEADLINE);
        Pool::MySql(pool.connect_lazy_with(mysql_options(place, database)))
    };
    Ok(Arc::new(SqlStore {
        url: place.shown.clone(),
        prefix: prefix.to_owned(),
        pool,
        reached: OnceCell::new(),
        retry: place.options.retry,
    }))
}

/// Returns the options of a PostgreSQL connection. The certificate of a server on the network is always
/// verified.
fn postgres_options(place: &StoreLocation, database: &str) -> PgConnectOptions {
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(&place.host)
        .port(place.url.port().unwrap_or(5432))
        .database(database)
        .application_name("konverge")
        .ssl_mode(if place.is_loopback() {
            PgSslMode::Prefer
        } else {
            PgSslMode::VerifyFull
        });
    if let Some(user) = place.user().or(place.variable(variables::PGUSER)) {
        options = options.username(user);
    }
    if let Some(password) = place.variable(variables::PGPASSWORD) {
        options = options.password(password);
    }
    if let Some(file) = &place.options.ca_file {
        options = options.ssl_root_cert(file);
    }
    options
}

/// Returns the options of a MySQL or MariaDB connection. The certificate of a server on the network is always
/// verified.
fn mysql_options(place: &StoreLocation, database: &str) -> MySqlConnectOptions {
    let mut options = MySqlConnectOptions::new()
        .host(&place.host)
        .port(place.url.port().unwrap_or(3306))
        .database(database)
        .ssl_mode(if place.is_loopback() {
            MySqlSslMode::Preferred
        } else {
            MySqlSslMode::VerifyIdentity
        });
    if let Some(user) = place.user().or(place.variable(variables::USER)) {
        options = options.username(user);
    }
    if let Some(password) = place.variable(variables::MYSQL_PWD) {
        options = options.password(password);
    }
    if let Some(file) = &place.options.ca_file {
        options = options.ssl_ca(file);
    }
    options
}

async fn mysql_connection(options: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
    with_timeout(CONNECT_DEADLINE, MySqlConnection::connect_with(options)).await
}

/// Awaits a response of the server, with a timeout.
async fn with_timeout<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let late = |_| {
        let why = format!("no answer within {} s", limit.as_secs());
        Err(sqlx::Error::Io(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            why,
        )))
    };
    tokio::time::timeout(limit, asked).await.unwrap_or_else(late)
}

/// Converts an error of the server. SQLSTATE class 28 is authorization, 42501 a missing privilege; MySQL uses
/// 42000 for the latter.
fn connect_error(url: &str, key: &str, error: sqlx::Error) -> StoreError {
    let denied = code(&error)
        .is_some_and(|code| code.starts_with("28") || code == "42501" || chain(&error).contains("denied"));
    let (url, key, why) = (url.to_owned(), key.to_owned(), error.into());
    if denied {
        StoreError::Denied { url, key, why }
    } else {
        StoreError::Unavailable { url, key, why }
    }
}

impl SqlStore {
    fn name(&self, key: &Key) -> Vec<u8> {
        key.below(&self.prefix).into_bytes()
    }

    fn error(&self, key: &Key, error: sqlx::Error) -> StoreError {
        connect_error(&self.url, key.as_str(), error)
    }

    /// Connects once outside the pool. The pool would retry a server that refuses until its timeout, and then
    /// report only the timeout.
    async fn connect(&self) -> Result<(), sqlx::Error> {
        let connected = async || match &self.pool {
            Pool::Postgres(pool) => {
                let options = pool.connect_options();
                with_timeout(CONNECT_DEADLINE, PgConnection::connect_with(&options))
                    .await?
                    .close()
                    .await
            }
            Pool::MySql(pool) => mysql_connection(&pool.connect_options()).await?.close().await,
        };
        self.reached.get_or_try_init(connected).await.copied()
    }

    async fn attempt<T, F, Fut>(&self, operation: F) -> Result<T, sqlx::Error>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, sqlx::Error>>,
    {
        let operation = || async {
            self.connect().await?;
            operation().await
        };
        self.retry
            .run(verdict, || with_timeout(DEADLINE, operation()))
            .await
    }

    async fn insert(&self, name: &[u8], content: &[u8]) -> Result<Created, sqlx::Error> {
        match self.pool.execute(&INSERT, &[name, content]).await {
            Ok(0) => Ok(Created::Exists),
            Ok(_) => Ok(Created::Created),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(Created::Exists),
            Err(error) => Err(error),
        }
    }

    /// Creates the table at the first write, so that a run that only reads needs no permission to create
    /// tables.
    async fn make_table(&self) -> Result<(), sqlx::Error> {
        match self.pool.execute(&MAKE_TABLE, &[]).await.map(drop) {
            // In PostgreSQL, two concurrent creations collide in the catalog, but one of them succeeded.
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(()),
            other => other,
        }
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    match error {
        sqlx::Error::Database(error) => error.code().map(|code| code.into_owned()),
        _ => None,
    }
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("42P01" | "42S02"))
}

fn verdict(error: &sqlx::Error) -> RetryDecision {
    let passing = match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        // A retry may help after a serialization failure, too many connections, a server start or a lost connection.
        _ => code(error).is_some_and(|code| {
            ["40", "53", "57", "08"]
                .iter()
                .any(|class| code.starts_with(class))
        }),
    };
    if passing {
        RetryDecision::Retry
    } else {
        RetryDecision::GiveUp
    }
}

#[async_trait]
impl Store for SqlStore {
    fn url(&self) -> &str {
        &self.url
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        let name = self.name(key);
        let values = [&*name];
        let found = self.attempt(|| self.pool.column(&GET, &values)).await;
        match found {
            Ok(contents) => Ok(contents.into_iter().next().map(Bytes::from)),
            Err(error) if is_missing_table(&error) => Ok(None),
            Err(error) => Err(self.error(key, error)),
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        let folder = self.name(prefix);
        // All keys below a folder are between `folder/` and `folder0`, because `0` is the character after
        // `/`.
        let (from, to) = if folder.is_empty() {
            (Vec::new(), vec![0xff])
        } else {
            ([&folder[..], b"/"].concat(), [&folder[..], b"0"].concat())
        };
        let values = [&*from, &*to];
        let found = self.attempt(|| self.pool.column(&LIST, &values)).await;
        let names = match found {
            Ok(names) => names,
            Err(error) if is_missing_table(&error) => Vec::new(),
            Err(error) => return Err(self.error(prefix, error)),
        };
        let names = names.into_iter().filter_map(|name| String::from_utf8(name).ok());
        Ok(Key::listed_below(&self.prefix, names))
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        let name = self.name(key);
        let write = || self.insert(&name, &content);
        let mut written = self.attempt(write).await;
        if written.as_ref().is_err_and(is_missing_table) {
            self.attempt(|| self.make_table())
                .await
                .map_err(|error| self.error(key, error))?;
            written = self.attempt(write).await;
        }
        written.map_err(|error| self.error(key, error))
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        let name = self.name(key);
        let values = [&*name];
        let deleted = self.attempt(|| self.pool.execute(&DELETE, &values)).await;
        match deleted {
            Err(error) if !is_missing_table(&error) => Err(self.error(key, error)),
            _ => Ok(()),
        }
    }
}
