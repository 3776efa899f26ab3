// What the package manager and Apple's Dispatch add to a module.
import Foundation

extension Bundle {
    static var module: Bundle { .main }
}

final class DispatchSerialQueue: SerialExecutor {
    init(label: String) {}
    func enqueue(_ job: consuming ExecutorJob) {}
    func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
}
