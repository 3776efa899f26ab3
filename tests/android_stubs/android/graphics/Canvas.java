package android.graphics;

public class Canvas {
    public Canvas(Bitmap bitmap) {}
    public void drawRect(float left, float top, float right, float bottom, Paint paint) {}
    public void drawLine(float startX, float startY, float stopX, float stopY, Paint paint) {}
}
