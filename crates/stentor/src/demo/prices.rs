//! Real prices: daily bars of AAPL, FB, GOOG, IBM and MSFT, March 2000 to March 2013.
//!
//! From the sample data of the Bokeh project; its licence is in `data/LICENSE.stocks.txt`. The
//! prices are those of the day, not adjusted for the splits that came later.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use flate2::read::GzDecoder;

/// A trading day.
#[derive(Debug, PartialEq)]
pub(super) struct Day {
    /// `2012-05-18`
    pub(super) date: String,
    /// One for each symbol that was traded that day, in alphabetical order.
    pub(super) quotes: Vec<Quote>,
}

/// A symbol's bar of one day. Prices are in US dollars.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quote {
    pub(super) symbol: String,
    pub(super) date: String,
    pub(super) open: f64,
    pub(super) high: f64,
    pub(super) low: f64,
    pub(super) close: f64,
    /// Shares traded.
    pub(super) volume: u64,
    /// The close of the trading day before, in shares of this day: halved over a two-for-one
    /// split. `None` on a symbol's first day.
    pub(super) previous_close: Option<f64>,
}

impl Quote {
    /// The quote as it is published.
    pub(super) fn json(&self) -> String {
        let Quote { symbol, date, open, high, low, close, volume, previous_close } = self;
        let previous = previous_close.map_or("null".to_owned(), |price| format!("{price:.2}"));
        format!(
            "{{\"symbol\":\"{symbol}\",\"date\":\"{date}\",\"open\":{open:.2},\"high\":{high:.2},\
             \"low\":{low:.2},\"close\":{close:.2},\"volume\":{volume},\
             \"previous_close\":{previous}}}"
        )
    }
}

/// All trading days from the date `from` on, in order.
pub(super) fn days(from: &str) -> Result<Vec<Day>, String> {
    let mut csv = String::new();
    GzDecoder::new(DATA)
        .read_to_string(&mut csv)
        .map_err(|error| format!("the prices cannot be unpacked: {error}"))?;
    let mut by_date = BTreeMap::<String, Vec<Quote>>::new();
    for quote in parse(&csv)? {
        if quote.date.as_str() >= from {
            by_date.entry(quote.date.clone()).or_default().push(quote);
        }
    }
    let day = |(date, mut quotes): (String, Vec<Quote>)| {
        quotes.sort_by(|a, b| a.symbol.cmp(&b.symbol));
        Day { date, quotes }
    };
    Ok(by_date.into_iter().map(day).collect())
}

/// Reads the bars; those of a symbol must stand in order of date.
fn parse(csv: &str) -> Result<Vec<Quote>, String> {
    let mut lines = csv.lines();
    if lines.next() != Some(HEADER) {
        return Err(format!("the prices do not begin with the line {HEADER}"));
    }
    let mut before = HashMap::<String, (f64, f64)>::new();
    let mut quotes = Vec::new();
    for (i, line) in lines.enumerate() {
        let bad = || format!("line {} of the prices is no bar: {line}", i + 2);
        let fields: Vec<&str> = line.split(',').collect();
        let &[symbol, date, open, high, low, close, volume, adjusted] = fields.as_slice() else {
            return Err(bad());
        };
        let price = |text: &str| text.parse::<f64>().ok().filter(|p| *p > 0.0).ok_or_else(bad);
        let (close, adjusted) = (price(close)?, price(adjusted)?);
        // One share of the first day has become `adjusted / close` of one by the last: a jump of
        // that figure to a multiple is a split. Dividends move it too, by a few per cent.
        let scale = adjusted / close;
        let previous_close = before
            .insert(symbol.to_owned(), (close, scale))
            .map(|(close, scale_before)| close / (scale / scale_before).round().max(1.0));
        quotes.push(Quote {
            symbol: symbol.to_owned(),
            date: date.to_owned(),
            open: price(open)?,
            high: price(high)?,
            low: price(low)?,
            close,
            volume: volume.parse().map_err(|_| bad())?,
            previous_close,
        });
    }
    Ok(quotes)
}

const DATA: &[u8] = include_bytes!("data/stocks.csv.gz");
const HEADER: &str = "Ticker,Date,Open,High,Low,Close,Volume,Adj Close";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_data() {
        let days = days("0000-00-00").unwrap();
        assert_eq!(days.iter().map(|day| day.quotes.len()).sum::<usize>(), 12_154);
        assert_eq!(days.first().unwrap().date, "2000-03-01");
        assert_eq!(days.last().unwrap().date, "2013-03-01");
        for pair in days.windows(2) {
            assert!(pair[0].date < pair[1].date, "{} {}", pair[0].date, pair[1].date);
        }
        for quote in days.iter().flat_map(|day| &day.quotes) {
            assert!(quote.low <= quote.close && quote.close <= quote.high, "{quote:?}");
            // No company ever lost or won more than this in a day: splits are accounted for.
            let change = quote.previous_close.map_or(1.0, |before| quote.close / before);
            assert!((0.45..1.5).contains(&change), "{quote:?}");
        }
    }

    #[test]
    fn days_are_merged_by_date() {
        let symbols = |day: &Day| day.quotes.iter().map(|q| q.symbol.clone()).collect::<Vec<_>>();
        let days = days("2004-08-18").unwrap();
        assert_eq!(symbols(&days[0]), ["AAPL", "IBM", "MSFT"]);
        assert_eq!(symbols(&days[1]), ["AAPL", "GOOG", "IBM", "MSFT"]);
        assert_eq!(days[1].quotes[1].previous_close, None);
        let all_five = super::days("2012-05-18").unwrap();
        assert_eq!(symbols(&all_five[0]), ["AAPL", "FB", "GOOG", "IBM", "MSFT"]);
        assert!(all_five[0].quotes[0].previous_close.is_some());
    }

    #[test]
    fn the_previous_close_is_in_shares_of_the_day() {
        let day = &days("2005-02-28").unwrap()[0];
        assert_eq!(day.quotes[0].previous_close, Some(88.99 / 2.0));
    }

    #[test]
    fn a_quote_as_json() {
        let csv = format!("{HEADER}\nFB,2012-05-18,42.05,45.0,38.0,38.23,573576400,38.23\n");
        let quotes = parse(&csv).unwrap();
        assert_eq!(
            quotes[0].json(),
            "{\"symbol\":\"FB\",\"date\":\"2012-05-18\",\"open\":42.05,\"high\":45.00,\
             \"low\":38.00,\"close\":38.23,\"volume\":573576400,\"previous_close\":null}"
        );
    }

    #[test]
    fn bad_data_is_named_by_line() {
        for bad in ["A,2000-01-01,1,1,1,1,1", "A,2000-01-01,1,1,1,x,1,1", "A,d,1,1,1,1,-1,1"] {
            let error = parse(&format!("{HEADER}\n{bad}\n")).unwrap_err();
            assert!(error.starts_with("line 2 of the prices is no bar"), "{error}");
        }
        assert!(parse("Date\n").is_err());
    }
}
