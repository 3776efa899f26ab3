import Foundation

/// The files that this package brings along.
enum Resources {
    /// Where a file is; nil for one that is not there.
    static func url(_ name: String, _ suffix: String) -> URL? {
        Bundle.module.url(forResource: name, withExtension: suffix)
    }

    /// Where a file is. Throws `ModelError` for one that is not there.
    static func file(_ name: String, _ suffix: String) throws -> URL {
        guard let url = url(name, suffix) else { throw ModelError("\(name).\(suffix) is missing from the package. Make it again.") }
        return url
    }
}
