//! Start-up time of a server: in process, and on a socket with TLS and a generated certificate.
//!
//! The target for the first is 10 ms. Run it with `cargo bench -p informer-apiserver --bench start`.

use std::time::{Duration, Instant};

use informer_apiserver::{ApiServer, ListenError, ListenOptions};

const STARTS: usize = 1_000;
const LISTENS: usize = 50;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ListenError> {
    let (mut starts, mut listens) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let started = Instant::now();
        let server = ApiServer::new();
        let _client = server.client();
        starts.push(started.elapsed());
    }
    for _ in 0..LISTENS {
        let server = ApiServer::new();
        let started = Instant::now();
        let running = server.listen(ListenOptions::https()).await?;
        listens.push(started.elapsed());
        running.shutdown().await;
    }
    print_times("start in process (target 10 ms)", &mut starts);
    print_times("listen with TLS", &mut listens);
    Ok(())
}

fn print_times(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    println!("{what:<30} median {:>9.1?}   99 % {:>9.1?}", at(50), at(99));
}
