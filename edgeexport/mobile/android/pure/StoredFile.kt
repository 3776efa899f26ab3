package {{ id }}

import java.io.File
import java.io.IOException
import java.io.InputStream
import java.io.RandomAccessFile
import java.security.DigestInputStream
import java.security.MessageDigest

/** A file that comes with the library: its [path] among the assets, and what its content must be. */
internal class Asset(val path: String, val sizeBytes: Long, val sha256: String)

/**
 * The [asset] as a file in [folder], for what needs a path: copied there by the first who asks, from [open], and found there by the others.
 *
 * It is named by its content, so that an update of the app has a new one; what was there before goes away. A copy has its name only when its
 * size and sha256 are right, so that one that was cut short is never taken for it. Throws IOException where that is not possible.
 */
internal fun storedFile(folder: File, asset: Asset, open: () -> InputStream): File {
    val file = File(folder, "${asset.sha256}.${asset.path.substringAfterLast('.')}")
    if (file.length() == asset.sizeBytes) return file
    if (!folder.isDirectory && !folder.mkdirs()) throw IOException("The folder $folder cannot be made.")
    val lock = File(folder, "lock")
    synchronized(Asset::class.java) {
        RandomAccessFile(lock, "rw").use { opened ->
            opened.channel.lock().use { // another process of the app may copy too
                if (file.length() != asset.sizeBytes) {
                    folder.listFiles().orEmpty().filter { it != lock }.forEach { it.delete() }
                    copy(asset, open, file)
                }
            }
        }
    }
    return file
}

private fun copy(asset: Asset, open: () -> InputStream, file: File) {
    val room = file.parentFile!!.usableSpace
    if (room < asset.sizeBytes) throw IOException("There is no room for ${asset.path}: it needs ${asset.sizeBytes} bytes, and $room are free.")
    val partial = File(file.path + ".partial")
    try {
        val digest = MessageDigest.getInstance("SHA-256")
        DigestInputStream(open(), digest).use { input -> partial.outputStream().use { input.copyTo(it, 1 shl 20) } }
        val found = digest.digest().joinToString("") { "%02x".format(it) }
        if (partial.length() != asset.sizeBytes || found != asset.sha256) {
            throw IOException("${asset.path} is damaged in this app: ${partial.length()} bytes with sha256 $found, not ${asset.sizeBytes} with ${asset.sha256}.")
        }
        if (!partial.renameTo(file)) throw IOException("$partial cannot be renamed to $file.")
    } finally {
        partial.delete()
    }
}
