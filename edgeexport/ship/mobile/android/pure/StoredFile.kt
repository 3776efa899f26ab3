package {{ id }}

import java.io.File
import java.io.IOException
import java.io.InputStream
import java.io.RandomAccessFile
import java.security.DigestInputStream
import java.security.MessageDigest

/** The file of a program: its [name], and what its content must be. */
public class ProgramFile internal constructor(public val name: String, public val sizeBytes: Long, public val sha256: String)

/**
 * The [program] as a file in [folder], for what needs a path: copied there by the first who asks, from [open], and found there by the others.
 *
 * It is named by its content, so that an update of the app has a new one; what was there before goes away. A copy has its name only when its
 * size and sha256 are right, so that one that was cut short is never taken for it. Throws IOException where that is not possible.
 */
internal fun storedFile(folder: File, program: ProgramFile, open: () -> InputStream): File {
    val file = File(folder, "${program.sha256}.${program.name.substringAfterLast('.')}")
    if (file.length() == program.sizeBytes) return file
    if (!folder.isDirectory && !folder.mkdirs()) throw IOException("The folder $folder cannot be made.")
    val lock = File(folder, "lock")
    synchronized(ProgramFile::class.java) {
        RandomAccessFile(lock, "rw").use { opened ->
            opened.channel.lock().use { // another process of the app may copy too
                if (file.length() != program.sizeBytes) {
                    folder.listFiles().orEmpty().filter { it != lock }.forEach { it.delete() }
                    copy(program, open, file)
                }
            }
        }
    }
    return file
}

private fun copy(program: ProgramFile, open: () -> InputStream, file: File) {
    val room = file.parentFile!!.usableSpace
    if (room < program.sizeBytes) throw IOException("There is no room for ${program.name}: it needs ${program.sizeBytes} bytes, and $room are free.")
    val partial = File(file.path + ".partial")
    try {
        val digest = MessageDigest.getInstance("SHA-256")
        DigestInputStream(open(), digest).use { input -> partial.outputStream().use { input.copyTo(it, 1 shl 20) } }
        val found = digest.digest().joinToString("") { "%02x".format(it) }
        if (partial.length() != program.sizeBytes || found != program.sha256) {
            throw IOException("${program.name} is damaged where it came from: ${partial.length()} bytes with sha256 $found, not ${program.sizeBytes} with ${program.sha256}.")
        }
        if (!partial.renameTo(file)) throw IOException("$partial cannot be renamed to $file.")
    } finally {
        partial.delete()
    }
}
